"""LeRobot datasets, as LeRobot's own Dataset has them. Start at `robot_clips`.

robot_clips                   LeRobotClips: the Dataset
robot_rows                    states, actions and whatever else there is of each frame
robot_cameras                 what the pictures of each camera become
"""
